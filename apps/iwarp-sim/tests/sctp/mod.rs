mod goodput;
mod queue_pairs;
