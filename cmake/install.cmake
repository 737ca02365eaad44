# bin/cohort finds lib/libmlx.so and the libraries that MLX brings by a path relative to itself.
# DT_RPATH, not DT_RUNPATH: it also serves what libmlx.so itself needs.
include(GNUInstallDirs)
target_link_options(cohort PRIVATE "LINKER:--disable-new-dtags")
set_target_properties(cohort PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS cohort RUNTIME DESTINATION bin)
install(FILES LICENSE DESTINATION share/licenses/cohort)
if(COHORT_MLX)
  get_filename_component(_mlx_lib "${MLX_LIBRARY}" DIRECTORY)
  file(GLOB _mlx_bundled "${COHORT_VENV}/lib/python3*/site-packages/mlx_cpu.libs/*.so*")
  file(GLOB _mlx_licences
    "${COHORT_VENV}/lib/python3*/site-packages/mlx_cpu-*.dist-info/licenses/*"
    "${COHORT_VENV}/lib/python3*/site-packages/mlx_cpu-*.dist-info/sboms/*")
  install(FILES "${_mlx_lib}/libmlx.so" ${_mlx_bundled} DESTINATION lib
    PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  install(FILES ${_mlx_licences} DESTINATION share/licenses/mlx)
endif()
install(CODE "execute_process(
  COMMAND python3 \"${CMAKE_SOURCE_DIR}/tools/collect_licences.py\"
          \"\${CMAKE_INSTALL_PREFIX}/share/licenses\"
  COMMAND_ERROR_IS_FATAL ANY)")
