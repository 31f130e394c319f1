# torch::torch: LibTorch from the wheel that cmake/setup.sh installed. Its own
# TorchConfig.cmake needs a CUDA toolkit even for a CPU build, hence by hand.

set(venvs venv cuda-venv)
if(FLOTILLA_CUDA)
  set(venvs cuda-venv venv)
endif()
list(TRANSFORM venvs PREPEND "${FLOTILLA_DEPS}/")
list(TRANSFORM venvs APPEND "/lib/python3*/site-packages/torch")
set(FLOTILLA_TORCH "")
foreach(pattern IN LISTS venvs)
  file(GLOB found "${pattern}")
  if(found AND NOT FLOTILLA_TORCH)
    list(GET found 0 FLOTILLA_TORCH)
  endif()
endforeach()
if(NOT FLOTILLA_TORCH)
  message(FATAL_ERROR "no LibTorch under ${FLOTILLA_DEPS}: run cmake/setup.sh "
    "(with the argument cuda for -DFLOTILLA_CUDA=ON), or configure with -DFLOTILLA_BUILD_LEARNER=OFF")
endif()
message(STATUS "LibTorch: ${FLOTILLA_TORCH}")

add_library(torch::torch INTERFACE IMPORTED)
# Last of all include folders: the wheel carries an older google/protobuf.
target_compile_options(torch::torch INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${FLOTILLA_TORCH}/include>"
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter ${FLOTILLA_TORCH}/include/torch/csrc/api/include>")
target_compile_definitions(torch::torch INTERFACE USE_C10D_GLOO)
target_link_libraries(torch::torch INTERFACE
  "${FLOTILLA_TORCH}/lib/libtorch_cpu.so" "${FLOTILLA_TORCH}/lib/libc10.so" Threads::Threads)

# at::parallel_for is a template of Torch's headers, which does all by itself where it is
# compiled without OpenMP, and says nothing. With it, it shares Torch's own threads: the
# runtime must be the one that Torch loads. Clang has another, and ThreadSanitizer does
# not see how its threads wait for each other.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT FLOTILLA_SANITIZE MATCHES "thread")
  file(GLOB openmp "${FLOTILLA_TORCH}/lib/libgomp*.so*")
  target_compile_options(torch::torch INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-fopenmp>")
  target_link_libraries(torch::torch INTERFACE ${openmp})
endif()

# flotilla_torch_pch(target [TEST]): compiles `target` with the learner's one precompiled
# header: learner/torch.h, and behind it what is precompiled for all others. The target
# links torch::torch and has no flags of its own that matter to a header.
flotilla_header(flotilla_torch_header
  HEADERS "${CMAKE_SOURCE_DIR}/learner/torch.h" ${flotilla_plain_headers}
  DEPS torch::torch gRPC::grpc++ protobuf::libprotobuf glog::glog)

function(flotilla_torch_pch target)
  flotilla_use_header(${target} flotilla_torch_header ${ARGN})
endfunction()
