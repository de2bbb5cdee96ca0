"""The built-in probes, one file per family; importing this package registers them all."""
