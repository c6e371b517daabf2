"""One service behind every face: the API, the command line and the console call these functions."""
