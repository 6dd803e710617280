//! Tables of a library's functions.
//!
//! UNSAFETY: types of functions that are found by their names.

/// A table of a library's functions: one field a function, of its name without the prefix, which are all found by
/// `Table::of`. The types must be those of the library's header: whoever calls one relies on it.
///
/// ```
/// use yonder_library::Library;
///
/// yonder_library::functions! {
///     Table, "str", "libc6";
///     len: fn(*const std::ffi::c_char) -> usize;
/// }
///
/// let table = Table::of(&Library::open("libc.so.6", "libc6")?)?;
/// // SAFETY: `strlen` has this type.
/// assert_eq!(unsafe { (table.len)(c"four".as_ptr()) }, 4);
/// # Ok::<(), yonder_library::LibraryError>(())
/// ```
#[macro_export]
macro_rules! functions {
    ($table:ident, $prefix:literal, $package:expr; $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        #[allow(non_snake_case, reason = "the names are the library's")]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            fn of(library: &$crate::Library) -> Result<Self, $crate::LibraryError> {
                Ok(Self { $($name: {
                    let name = match std::ffi::CStr::from_bytes_with_nul(concat!($prefix, stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    };
                    let found = library.function(name, $package)?;
                    // SAFETY: the function of this name has this type in the library's header.
                    unsafe {
                        std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found)
                    }
                },)* })
            }
        }
    };
}
