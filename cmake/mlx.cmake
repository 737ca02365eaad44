# Finds MLX in the pinned wheel that tools/setup.sh put into .deps/venv, or in that of the CUDA preset
# (docs/cuda.md).
set(COHORT_VENV "${CMAKE_SOURCE_DIR}/.deps/venv" CACHE PATH "Python environment that holds MLX")
file(GLOB _mlx_prefix "${COHORT_VENV}/lib/python3*/site-packages/mlx")
# The CUDA wheel asks for cuDNN, which pip puts beside it.
file(GLOB _cudnn "${COHORT_VENV}/lib/python3*/site-packages/nvidia/cudnn")
if(_cudnn)
  set(CUDNN_INCLUDE_PATH "${_cudnn}/include")
  set(CUDNN_LIBRARY_PATH "${_cudnn}/lib")
endif()
find_package(MLX CONFIG REQUIRED PATHS ${_mlx_prefix} NO_DEFAULT_PATH)
# System include: MLX headers are not held to our warnings.
get_target_property(_mlx_includes mlx INTERFACE_INCLUDE_DIRECTORIES)
set_target_properties(mlx PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_mlx_includes}")
