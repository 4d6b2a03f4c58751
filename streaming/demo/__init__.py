"""The demo: a real training job that is killed, resumed on another world size, and judged by what its trainer received."""
