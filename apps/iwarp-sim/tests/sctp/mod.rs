mod goodput;
mod hostile;
mod queue_pairs;
