"""OpenAI's API: a module an endpoint, each a pair of translations between its JSON and the internal request."""
