# The rooms in the order that data flows; each sees only rooms above it (tools/tidy.py checks it).
# Rooms and parts of rooms before COHORT_MLX are free of MLX headers and build in every preset.
cohort_room(base DEPENDS fmt::fmt OpenSSL::Crypto Threads::Threads)
cohort_room(text DEPENDS cohort_base textkit)
