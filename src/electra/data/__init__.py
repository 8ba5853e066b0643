"""Raw text to a token store, and the store to batches."""
