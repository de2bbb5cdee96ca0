"""The decoders, one file per wire format; importing this package registers them all."""
