//! What ran: version, commit, compiler.

use serde::{Deserialize, Serialize};

/// A build. What was unknown when it was made is absent.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Build {
    pub version: String,
    /// The commit, with `-dirty` when the tree had changes.
    pub commit: Option<String>,
    pub rustc: Option<String>,
    /// `release` or `debug`.
    pub profile: Option<String>,
    /// The processor and system that it was made for.
    pub target: Option<String>,
    /// Optional parts that were built in.
    pub features: Vec<String>,
}

impl Build {
    /// This build, with the optional parts that the program names.
    pub fn current(features: &[&str]) -> Self {
        Build {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("IRONWARP_COMMIT").map(str::to_owned),
            rustc: option_env!("IRONWARP_RUSTC").map(str::to_owned),
            profile: option_env!("IRONWARP_PROFILE").map(str::to_owned),
            target: option_env!("IRONWARP_TARGET").map(str::to_owned),
            features: features.iter().map(|&feature| feature.to_owned()).collect(),
        }
    }

    pub fn summary(&self) -> String {
        let known = [self.commit.as_deref(), self.profile.as_deref(), self.rustc.as_deref()];
        let known: Vec<&str> = known.into_iter().flatten().collect();
        let features =
            if self.features.is_empty() { String::new() } else { format!(" + {}", self.features.join(", ")) };
        format!("ironwarp {} ({}){features}", self.version, known.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_knows_its_version_and_its_compiler() {
        let build = Build::current(&["dpdk"]);
        assert_eq!(build.features, ["dpdk"]);
        assert!(build.rustc.as_deref().expect("cargo names the compiler").starts_with("rustc "));
        assert!(build.summary().starts_with(&format!("ironwarp {}", build.version)));
    }
}
