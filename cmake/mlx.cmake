# Finds MLX in the pinned wheel that tools/setup.sh put into .deps/venv (or under -DCOHORT_VENV).
set(COHORT_VENV "${CMAKE_SOURCE_DIR}/.deps/venv" CACHE PATH "Python environment that holds mlx-cpu")
file(GLOB _mlx_prefix "${COHORT_VENV}/lib/python3*/site-packages/mlx")
find_package(MLX CONFIG REQUIRED PATHS ${_mlx_prefix} NO_DEFAULT_PATH)
# System include: MLX headers are not held to our warnings.
get_target_property(_mlx_includes mlx INTERFACE_INCLUDE_DIRECTORIES)
set_target_properties(mlx PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_mlx_includes}")
