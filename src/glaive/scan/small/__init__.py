"""Many small fragments read as one."""
