"""The reporters, one file per output format; importing this package registers them all."""
