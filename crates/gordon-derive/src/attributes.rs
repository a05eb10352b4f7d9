//! `#[persist(...)]`: how definitions follow earlier ones, and how values are exported. No attribute changes what is stored.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Error, Expr, LitStr, Type};

/// What the attributes of a type, a variant or a field say.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) was: Vec<String>,
    pub(crate) dropped: Vec<String>,
    pub(crate) untagged: bool,
    default: Option<Option<Expr>>,
}

/// What has the attributes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum On {
    Struct,
    Enum,
    Variant,
    Field,
}

impl Attributes {
    /// Reads them; those that mean nothing there are errors.
    pub(crate) fn read(attributes: &[Attribute], on: On) -> Result<Self, Error> {
        let mut read = Self::default();
        let is_type = matches!(on, On::Struct | On::Enum);
        for attribute in attributes.iter().filter(|a| a.path().is_ident("persist")) {
            attribute.parse_nested_meta(|meta| {
                let is = |name| meta.path.is_ident(name);
                if is("was") {
                    read.was.push(meta.value()?.parse::<LitStr>()?.value());
                } else if is("dropped") && is_type {
                    read.dropped.push(meta.value()?.parse::<LitStr>()?.value());
                } else if is("untagged") && on == On::Enum {
                    read.untagged = true;
                } else if is("default") && on == On::Field {
                    let given = meta.input.peek(syn::Token![=]);
                    let value = given.then(|| meta.value()?.parse::<Expr>()).transpose()?;
                    read.default = Some(value);
                } else {
                    return Err(meta.error(match on {
                        On::Struct => "a struct takes was = \"...\" and dropped = \"...\"",
                        On::Enum => "an enum takes was = \"...\", dropped = \"...\" and untagged",
                        On::Variant => "a variant takes was = \"...\"",
                        On::Field => "a field takes was = \"...\", default and default = ...",
                    }));
                }
                Ok(())
            })?;
        }
        Ok(read)
    }

    /// The value of a field of type `of` that is missing in stored objects.
    pub(crate) fn fill(&self, of: &Type) -> TokenStream {
        match &self.default {
            None => quote!(::core::option::Option::None),
            Some(value) => {
                let value = match value {
                    None => quote!(<#of as ::core::default::Default>::default()),
                    Some(value) => quote!(#value),
                };
                quote!({
                    let value: #of = #value;
                    ::core::option::Option::Some(::gordon::derive::fill_of(&value))
                })
            }
        }
    }
}
