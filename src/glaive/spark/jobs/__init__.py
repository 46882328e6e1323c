"""Jobs: a plan on the driver, tasks in the cluster that read and write files, one commit."""
