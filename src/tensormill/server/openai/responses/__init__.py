"""`/v1/responses`: items in, items out, stored in memory, streamed as OpenAI's events."""
