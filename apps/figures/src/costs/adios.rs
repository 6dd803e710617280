//! Adios' experiments (EuroSys'25): DiLOS, DiLOS-P, Adios and Hermit behind one request handler.

super::costs! {
    WORKERS, "workers", 8.0, Paper, "Adios, section 5: eight worker threads, one dispatcher, one reclaimer";
}
