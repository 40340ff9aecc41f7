//! Lock-free rings with one producer and one consumer.
