//! An enum that is a list or a table: all variants can be listed, and each may have a row beside
//! it.

/// Declares the enum, its list `ALL`, and the function that returns a variant's row, if it has one.
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
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$kind_meta:meta])* $kind:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name {
            $($(#[$kind_meta])* $kind,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$kind),*];
        }
    };
}

pub(crate) use kinds;
