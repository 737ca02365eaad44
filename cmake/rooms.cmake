# The rooms in the order that data flows; each sees only rooms above it (tools/tidy.py checks it).
# Rooms and parts of rooms before COHORT_MLX are free of MLX headers and build in every preset.
cohort_room(base DEPENDS fmt::fmt OpenSSL::Crypto Threads::Threads)
cohort_room(text DEPENDS cohort_base textkit)

# The channel between the engine and its consumers, for the rooms that never see an array.
find_package(Boost 1.81 REQUIRED)
add_library(cohort_stream STATIC src/engine/stream.cpp)
target_include_directories(cohort_stream PUBLIC src)
target_link_libraries(cohort_stream PUBLIC cohort_base PRIVATE cohort_warnings)
cohort_room(api DEPENDS cohort_base cohort_stream Boost::headers)
cohort_room(http DEPENDS cohort_api)
if(COHORT_SANITIZE STREQUAL "thread")
  # Asio's fences only back up its locks, and the thread sanitizer does not know fences.
  target_compile_definitions(cohort_http PUBLIC BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
