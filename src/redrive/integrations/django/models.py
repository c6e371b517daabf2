"""No models: Django tells only the apps that have this module that migrations were run."""
