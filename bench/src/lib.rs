//! Measuring: histograms, rounds, baselines, tables and reports.
