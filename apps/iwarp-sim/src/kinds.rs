//! An enum that is a table: each variant has its row beside it, and all of them can be listed.

/// Declares the enum, its list `ALL`, and the function that returns a variant's row.
macro_rules! kinds {
    (
        $(#[$meta:meta])* $vis:vis enum $name:ident {
            $(#[$row_meta:meta])* $row_vis:vis fn $row:ident -> $type:ty;
            $($(#[$kind_meta:meta])* $kind:ident => $value:expr,)*
            $(; $(#[$other_meta:meta])* $other:ident($inner:ty) => $other_value:expr)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name {
            $($(#[$kind_meta])* $kind,)*
            $($(#[$other_meta])* $other($inner))?
        }

        impl $name {
            /// All of them, except one with a kind of its own.
            pub const ALL: &[$name] = &[$($name::$kind),*];

            $(#[$row_meta])*
            $row_vis fn $row(self) -> $type {
                match self {
                    $($name::$kind => $value,)*
                    $($name::$other(_) => $other_value)?
                }
            }
        }
    };
}

pub(crate) use kinds;
