//! `#[derive(Persist)]`: stores a struct or an enum in a `gordon` heap.
//!
//! Fields are stored in order. An enum is stored as a byte with the number of its variant, followed
//! by the fields of the variant in the space of the largest one. The schema is a hash of the
//! definition's text and of the type parameters' schemas.

mod attributes;

use attributes::{Attributes, On};
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, GenericParam, Lifetime, Type};

/// Derives `gordon::Persist` for a struct or an enum whose fields are all `Persist`.
///
/// The type must be `Copy`. If it holds references, its one lifetime parameter is that of the
/// update or view in which it is read.
///
/// A changed definition is another type: `Tx::migrate` converts a heap to it. Attributes say how, where names alone do not:
///
/// | attribute | on | means |
/// | --- | --- | --- |
/// | `#[persist(was = "Old")]` | type, variant, field | its name in earlier definitions |
/// | `#[persist(default)]`, `#[persist(default = 5)]` | field | its value in objects that were stored without it |
/// | `#[persist(dropped = "field")]` | type | an earlier field whose values may be lost |
/// | `#[persist(untagged)]` | enum | exported trees have its values without the names of variants |
///
/// They change neither what is stored nor the type: once all heaps are migrated they can go.
#[proc_macro_derive(Persist, attributes(persist))]
pub fn persist(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    derive(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

fn derive(input: &DeriveInput) -> Result<TokenStream, Error> {
    let name = &input.ident;
    let lifetimes: Vec<_> = input
        .generics
        .lifetimes()
        .map(|l| l.lifetime.clone())
        .collect();
    if let Some(second) = lifetimes.get(1) {
        return Err(Error::new(
            second.span(),
            "a persistent type has one lifetime parameter at most: that of the update",
        ));
    }
    let lifetime = lifetimes
        .first()
        .cloned()
        .unwrap_or_else(|| Lifetime::new("'t", Span::call_site()));

    let mut generics = input.generics.clone();
    if lifetimes.is_empty() {
        generics.params.insert(0, syn::parse_quote!(#lifetime));
    }
    for parameter in generics.type_params_mut() {
        parameter
            .bounds
            .push(syn::parse_quote!(::gordon::Persist<#lifetime>));
        parameter.default = None;
    }
    let (impl_generics, _, where_clause) = generics.split_for_impl();
    let (_, type_generics, _) = input.generics.split_for_impl();

    let at_arguments = input
        .generics
        .params
        .iter()
        .map(|parameter| match parameter {
            GenericParam::Lifetime(_) => quote!('gordon_at),
            GenericParam::Type(parameter) => {
                let ident = &parameter.ident;
                quote!(<#ident as ::gordon::Persist<#lifetime>>::At<'gordon_at>)
            }
            GenericParam::Const(parameter) => {
                let ident = &parameter.ident;
                quote!(#ident)
            }
        });
    let at = quote!(#name<#(#at_arguments),*>);

    let parameters: Vec<_> = input
        .generics
        .type_params()
        .map(|p| p.ident.clone())
        .collect();
    let text = schema_text(input);
    let schema = quote! {{
        let schema = ::gordon::derive::schema_of(#text);
        #(let schema = ::gordon::derive::mix_schema(
            schema,
            <#parameters as ::gordon::Persist<#lifetime>>::SCHEMA,
        );)*
        schema
    }};

    let body = match &input.data {
        Data::Struct(data) => of_struct(&data.fields, &lifetime),
        Data::Enum(data) => of_enum(name, data, &lifetime)?,
        Data::Union(data) => {
            return Err(Error::new(
                data.union_token.span(),
                "a union cannot be persistent: its current field is not known",
            ));
        }
    };
    let Body {
        pointers,
        bytes,
        load,
        store,
    } = body;
    let describe = describe(input, &lifetime, &parameters)?;
    Ok(quote! {
        impl #impl_generics ::gordon::Persist<#lifetime> for #name #type_generics #where_clause {
            type At<'gordon_at> = #at;
            const POINTERS: usize = #pointers;
            const BYTES: usize = #bytes;
            const SCHEMA: u64 = #schema;

            fn describe(types: &mut ::gordon::Describer) -> ::gordon::TypeNumber {
                #describe
            }

            #[inline(always)]
            fn load(from: &mut ::gordon::Load<#lifetime, '_>) -> Self {
                #load
            }

            #[inline(always)]
            fn store(&self, to: &mut ::gordon::Store<#lifetime, '_>) {
                #store
            }
        }
    })
}

/// The definition without attributes, so that a changed comment does not change the type.
fn schema_text(input: &DeriveInput) -> String {
    let mut bare = input.clone();
    bare.attrs.clear();
    let strip = |fields: &mut Fields| fields.iter_mut().for_each(|field| field.attrs.clear());
    match &mut bare.data {
        Data::Struct(data) => strip(&mut data.fields),
        Data::Enum(data) => data.variants.iter_mut().for_each(|variant| {
            variant.attrs.clear();
            strip(&mut variant.fields);
        }),
        Data::Union(_) => {}
    }
    quote!(#bare).to_string()
}

/// The body of `describe`.
fn describe(
    input: &DeriveInput,
    lifetime: &Lifetime,
    parameters: &[syn::Ident],
) -> Result<TokenStream, Error> {
    let name = input.ident.to_string();
    let fields = |fields: &Fields| {
        let described = fields.iter().enumerate().map(|(index, field)| {
            let attributes = Attributes::read(&field.attrs, On::Field)?;
            let name = match &field.ident {
                Some(name) => name.to_string(),
                None => index.to_string(),
            };
            let (was, of) = (&attributes.was, &field.ty);
            let fill = attributes.fill(of);
            Ok(quote! {
                ::gordon::derive::Field::new(
                    #name,
                    &[#(#was),*],
                    #fill,
                    <#of as ::gordon::Persist<#lifetime>>::describe(types),
                )
            })
        });
        let described: Vec<_> = described.collect::<Result<_, Error>>()?;
        Ok::<_, Error>(quote!(::std::vec![#(#described),*]))
    };
    let on = match &input.data {
        Data::Enum(_) => On::Enum,
        Data::Struct(_) | Data::Union(_) => On::Struct,
    };
    let Attributes {
        was,
        dropped,
        untagged,
        ..
    } = Attributes::read(&input.attrs, on)?;
    let head = quote! {
        ::gordon::derive::key_of::<Self>(),
        [::core::module_path!(), #name],
        [&[#(#was),*], &[#(#dropped),*]]
    };
    let parameters = quote! {
        |_types| ::std::vec![#(<#parameters as ::gordon::Persist<#lifetime>>::describe(_types)),*]
    };
    Ok(match &input.data {
        Data::Enum(data) => {
            let variants = data.variants.iter().map(|variant| {
                let was = Attributes::read(&variant.attrs, On::Variant)?.was;
                let (name, fields) = (variant.ident.to_string(), fields(&variant.fields)?);
                Ok(quote!(::gordon::derive::Variant::new(#name, &[#(#was),*], #fields)))
            });
            let variants: Vec<_> = variants.collect::<Result<_, Error>>()?;
            quote! {
                types.enumeration(#head, #untagged, #parameters, |types| {
                    let _ = &types;
                    ::std::vec![#(#variants),*]
                })
            }
        }
        Data::Struct(data) => {
            let fields = fields(&data.fields)?;
            quote! {
                types.structure(#head, #parameters, |types| {
                    let _ = &types;
                    #fields
                })
            }
        }
        Data::Union(_) => quote!(),
    })
}

struct Body {
    pointers: TokenStream,
    bytes: TokenStream,
    load: TokenStream,
    store: TokenStream,
}

fn sums<'a>(
    fields: impl Iterator<Item = &'a Field> + Clone,
    lifetime: &Lifetime,
) -> (TokenStream, TokenStream) {
    let types: Vec<&Type> = fields.map(|field| &field.ty).collect();
    (
        quote!(0 #(+ <#types as ::gordon::Persist<#lifetime>>::POINTERS)*),
        quote!(0 #(+ <#types as ::gordon::Persist<#lifetime>>::BYTES)*),
    )
}

/// `{ a: load, b: load }`, `(load, load)` or nothing.
fn loads(fields: &Fields, lifetime: &Lifetime) -> TokenStream {
    let load = |field: &Field| {
        let of = &field.ty;
        quote!(<#of as ::gordon::Persist<#lifetime>>::load(from))
    };
    match fields {
        Fields::Named(fields) => {
            let fields = fields.named.iter().map(|field| {
                let (name, load) = (&field.ident, load(field));
                quote!(#name: #load)
            });
            quote!({ #(#fields),* })
        }
        Fields::Unnamed(fields) => {
            let fields = fields.unnamed.iter().map(load);
            quote!((#(#fields),*))
        }
        Fields::Unit => quote!(),
    }
}

/// A pattern that binds every field to a name, and the names.
fn bindings(fields: &Fields) -> (TokenStream, Vec<syn::Ident>) {
    let names: Vec<_> = (0..fields.len())
        .map(|index| format_ident!("field_{index}"))
        .collect();
    let pattern = match fields {
        Fields::Named(fields) => {
            let fields = fields.named.iter().map(|field| &field.ident);
            quote!({ #(#fields: #names),* })
        }
        Fields::Unnamed(_) => quote!((#(#names),*)),
        Fields::Unit => quote!(),
    };
    (pattern, names)
}

fn of_struct(fields: &Fields, lifetime: &Lifetime) -> Body {
    let (pointers, bytes) = sums(fields.iter(), lifetime);
    let loads = loads(fields, lifetime);
    let (pattern, names) = bindings(fields);
    let from = if fields.is_empty() {
        quote!(let _ = from;)
    } else {
        quote!()
    };
    let to = if fields.is_empty() {
        quote!(let _ = to;)
    } else {
        quote!()
    };
    Body {
        pointers,
        bytes,
        load: quote!(#from Self #loads),
        store: quote! {
            #to
            let Self #pattern = self;
            #(::gordon::Persist::<#lifetime>::store(#names, to);)*
        },
    }
}

fn of_enum(name: &syn::Ident, data: &syn::DataEnum, lifetime: &Lifetime) -> Result<Body, Error> {
    if data.variants.is_empty() {
        return Err(Error::new(
            name.span(),
            "an enum without variants has no values to store",
        ));
    }
    if data.variants.len() > 256 {
        return Err(Error::new(
            name.span(),
            "a persistent enum has at most 256 variants",
        ));
    }
    let mut pointers = quote!(0);
    let mut bytes = quote!(0);
    let mut loading = Vec::new();
    let mut storing = Vec::new();
    for (index, variant) in data.variants.iter().enumerate() {
        let tag = index as u8;
        let ident = &variant.ident;
        let (these_pointers, these_bytes) = sums(variant.fields.iter(), lifetime);
        pointers = quote!(::gordon::derive::larger(#pointers, #these_pointers));
        bytes = quote!(::gordon::derive::larger(#bytes, #these_bytes));
        let loads = loads(&variant.fields, lifetime);
        loading.push(quote!(#tag => Self::#ident #loads));
        let (pattern, names) = bindings(&variant.fields);
        storing.push(quote! {
            Self::#ident #pattern => {
                ::gordon::Persist::<#lifetime>::store(&#tag, to);
                #(::gordon::Persist::<#lifetime>::store(#names, to);)*
            }
        });
    }
    let name = name.to_string();
    Ok(Body {
        pointers,
        bytes: quote!(1 + #bytes),
        load: quote! {
            let from = &mut from.part(
                <Self as ::gordon::Persist<#lifetime>>::POINTERS,
                <Self as ::gordon::Persist<#lifetime>>::BYTES,
            );
            match <u8 as ::gordon::Persist<#lifetime>>::load(from) {
                #(#loading,)*
                tag => ::gordon::derive::unknown_variant(#name, tag),
            }
        },
        store: quote! {
            let to = &mut to.part(
                <Self as ::gordon::Persist<#lifetime>>::POINTERS,
                <Self as ::gordon::Persist<#lifetime>>::BYTES,
            );
            match self {
                #(#storing)*
            }
        },
    })
}
