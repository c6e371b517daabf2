"""The experiments, a file each; ``redrive.labs.catalog`` numbers them."""
