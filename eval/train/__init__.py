"""Programs that train the artefacts the store loads; each has a seed and can be run again."""
