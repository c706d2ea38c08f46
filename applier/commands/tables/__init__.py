"""Commands `park`, `resume` and `forget`: the life of single tables, while `run` goes on and while it is stopped."""
