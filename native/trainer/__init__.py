"""LoRA training of a language model on prepared token windows, as a sidecar speaking JSON lines. See `__main__`."""
