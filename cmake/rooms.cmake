# The rooms in the order that data flows; each sees only rooms above it (tools/tidy.py checks it).
# Rooms and parts of rooms before COHORT_MLX are free of MLX headers and build in every preset.
cohort_room(base DEPENDS fmt::fmt OpenSSL::Crypto Threads::Threads)
cohort_room(text DEPENDS cohort_base textkit)

find_package(CURL REQUIRED)
cohort_room(store DEPENDS cohort_base CURL::libcurl)

cohort_room(app DEPENDS cohort_base cohort_store)
target_compile_definitions(cohort_app PRIVATE COHORT_VERSION="${PROJECT_VERSION}")
if(COHORT_MLX)
  target_compile_definitions(cohort_app PRIVATE COHORT_WITH_MLX)
  target_link_libraries(cohort_app PUBLIC mlx)
endif()
add_executable(cohort src/app/main.cpp)
target_link_libraries(cohort PRIVATE cohort_app cohort_warnings)
include(cmake/install.cmake)
