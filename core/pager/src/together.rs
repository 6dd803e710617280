//! A model of the pager's parts together: see `model`.

mod model;
