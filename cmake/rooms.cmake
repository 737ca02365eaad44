# The rooms in the order that data flows; each sees only rooms above it (tools/tidy.py checks it).
# Libraries above COHORT_MLX are free of MLX headers and build in every preset.
cohort_room(base SOURCES base/*.cpp
  DEPENDS fmt::fmt Boost::headers OpenSSL::Crypto Threads::Threads)
cohort_room(kernels_cpu SOURCES kernels/cpu/*.cpp kernels/cpu/encodings/*.cpp DEPENDS cohort_base)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 reports the "undefined" operands inside its own AVX-512 header.
  set_property(SOURCE src/kernels/cpu/target_avx512.cpp APPEND PROPERTY
    COMPILE_OPTIONS -Wno-maybe-uninitialized -Wno-uninitialized)
endif()
if(COHORT_SANITIZE STREQUAL "address")
  # What is undefined is looked for in plain C++, which is the same code but for its lanes and takes
  # an hour for a crowd of rows without -O2.
  file(GLOB targets src/kernels/cpu/target_*.cpp)
  list(FILTER targets EXCLUDE REGEX target_scalar)
  set_property(SOURCE ${targets} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
  set_property(SOURCE src/kernels/cpu/target_scalar.cpp APPEND PROPERTY COMPILE_OPTIONS -O2)
endif()
cohort_room(kv SOURCES kv/*.cpp kv/codecs/*.cpp DEPENDS cohort_kernels_cpu)
# The part of the model room that reads checkpoint files.
cohort_room(checkpoint SOURCES model/checkpoint.cpp model/gguf.cpp model/gguf_metadata.cpp
  model/quantization.cpp model/safetensors.cpp model/tensor_view.cpp
  DEPENDS cohort_base)
cohort_room(text SOURCES text/*.cpp DEPENDS cohort_base textkit)
# What a caller sees of the engine.
cohort_room(engine_calls SOURCES engine/request.cpp engine/stream.cpp DEPENDS cohort_kv)
# All of the engine but the forward of a real model.
cohort_room(engine SOURCES engine/admission.cpp engine/engine.cpp engine/iteration_trace.cpp
  engine/logprobs.cpp engine/loop.cpp
  engine/prefill_policy.cpp engine/row.cpp engine/sampler.cpp engine/scheduler.cpp
  engine/token_budget.cpp engine/waiting_line.cpp
  DEPENDS cohort_engine_calls cohort_store cohort_text)
cohort_room(api SOURCES api/*.cpp DEPENDS cohort_engine_calls)
cohort_room(http SOURCES http/*.cpp DEPENDS cohort_api)
if(COHORT_SANITIZE STREQUAL "thread")
  # Asio's fences only back up its locks, and the thread sanitizer does not know fences.
  target_compile_definitions(cohort_http PUBLIC BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()

# The store room: what keeps prefixes of rows, and what finds and downloads models.
find_package(CURL REQUIRED)
find_package(SQLite3 REQUIRED)
cohort_room(store SOURCES store/*.cpp store/ssd/*.cpp DEPENDS cohort_kv SQLite::SQLite3)
cohort_room(hub SOURCES store/hub/*.cpp DEPENDS cohort_base CURL::libcurl)

if(COHORT_MLX)
  cohort_room(kernels SOURCES kernels/*.cpp DEPENDS cohort_kernels_cpu mlx)
  cohort_room(nn SOURCES nn/*.cpp DEPENDS cohort_kernels)
  cohort_room(model SOURCES model/config_reader.cpp model/decoder.cpp model/feed.cpp model/registry.cpp
    model/rope_config.cpp model/source.cpp model/weights.cpp model/families/*.cpp
    DEPENDS cohort_kv cohort_nn cohort_checkpoint)
  cohort_room(engine_model SOURCES engine/model_forward.cpp DEPENDS cohort_engine cohort_model)
  cohort_room(serving SOURCES serving/*.cpp DEPENDS cohort_engine_model)
endif()

cohort_room(app_plumbing SOURCES app/command_line.cpp app/cli_cache.cpp app/cli_pull.cpp
  app/cli_ls.cpp app/version.cpp DEPENDS cohort_hub cohort_store)
target_compile_definitions(cohort_app_plumbing PRIVATE COHORT_VERSION="${PROJECT_VERSION}")
if(COHORT_MLX)
  target_compile_definitions(cohort_app_plumbing PRIVATE COHORT_WITH_MLX)
  target_link_libraries(cohort_app_plumbing PUBLIC mlx)
  cohort_room(app SOURCES app/cli_bench.cpp app/cli_fit.cpp app/cli_logits.cpp app/cli_run.cpp app/cli_serve.cpp
    app/loading.cpp
    DEPENDS cohort_app_plumbing cohort_serving cohort_http)
  add_executable(cohort src/app/main.cpp)
  target_link_libraries(cohort PRIVATE cohort_app cohort_warnings)
  include(cmake/install.cmake)
endif()
