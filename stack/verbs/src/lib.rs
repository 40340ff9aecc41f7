//! iWARP in user space: queue pairs, completion queues, memory regions, connections and the core loop.
