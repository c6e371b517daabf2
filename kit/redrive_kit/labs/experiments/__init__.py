"""The experiments, a file each; ``redrive_kit.labs.catalog`` numbers them."""
