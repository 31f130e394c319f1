"""Films: what `flotilla replay --video` encodes frames with."""
