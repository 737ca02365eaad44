# The rooms in the order that data flows; each sees only rooms above it (tools/tidy.py checks it).
# Rooms and parts of rooms before COHORT_MLX are free of MLX headers and build in every preset.
cohort_room(base DEPENDS fmt::fmt Boost::headers OpenSSL::Crypto Threads::Threads)
cohort_room(text DEPENDS cohort_base textkit)

# The part of the model room that reads checkpoint files.
add_library(cohort_checkpoint STATIC
  src/model/checkpoint.cpp src/model/gguf.cpp src/model/gguf_metadata.cpp
  src/model/quantization.cpp src/model/safetensors.cpp src/model/tensor_view.cpp)
target_link_libraries(cohort_checkpoint PUBLIC cohort_base PRIVATE cohort_warnings)
