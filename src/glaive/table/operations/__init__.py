"""Operations on a table, one file each."""
