# Builds rust/textkit (tokenizer and chat template behind a C ABI) once for all presets.
set(TEXTKIT_DIR "${CMAKE_SOURCE_DIR}/build/textkit")
set(TEXTKIT_LIB "${TEXTKIT_DIR}/release/libtextkit.a")
find_program(CARGO cargo HINTS /usr/lib/rust-web/bin REQUIRED)
# The depfile, which cargo writes, names the Rust sources. Cargo leaves a library that is up to
# date alone; the touch tells the build tool so.
add_custom_command(
  OUTPUT "${TEXTKIT_LIB}"
  COMMAND "${CMAKE_COMMAND}" -E env "CARGO_TARGET_DIR=${TEXTKIT_DIR}"
          "${CARGO}" build --release --locked --quiet
  COMMAND "${CMAKE_COMMAND}" -E touch_nocreate "${TEXTKIT_LIB}"
  WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}/rust/textkit"
  DEPFILE "${TEXTKIT_DIR}/release/libtextkit.d"
  DEPENDS "${CMAKE_SOURCE_DIR}/rust/textkit/Cargo.toml" "${CMAKE_SOURCE_DIR}/rust/textkit/Cargo.lock"
  COMMENT "Building rust/textkit" USES_TERMINAL VERBATIM)
add_custom_target(textkit_build DEPENDS "${TEXTKIT_LIB}")
add_library(textkit STATIC IMPORTED GLOBAL)
set_target_properties(textkit PROPERTIES IMPORTED_LOCATION "${TEXTKIT_LIB}"
  INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_SOURCE_DIR}/rust/textkit/include"
  INTERFACE_LINK_LIBRARIES "pthread;dl;m")
add_dependencies(textkit textkit_build)
