# FLOTILLA_NVCC: the CUDA compiler from the wheels, where cmake/setup.sh put it; it
# needs neither GPU nor driver. With FLOTILLA_CUDA=ON also cuda::cudart, and
# torch::torch with its CUDA half.

set(FLOTILLA_NVCC "")
foreach(venv cuda-venv nvcc-venv)
  file(GLOB found "${FLOTILLA_DEPS}/${venv}/lib/python3*/site-packages/nvidia/cu13")
  if(found AND NOT FLOTILLA_NVCC AND EXISTS "${found}/bin/nvcc")
    set(FLOTILLA_NVCC "${found}/bin/nvcc")
    set(cu "${found}")
  endif()
endforeach()
# A100, H100, RTX 50; others of their families run these, and those in between
# compile what is for an H100 when they load it.
set(FLOTILLA_NVCC_FLAGS -std=c++20 -O3 -ccbin "${CMAKE_CXX_COMPILER}" "-I${CMAKE_SOURCE_DIR}"
  "-I${cu}/include/cccl" -gencode arch=compute_80,code=sm_80
  -gencode arch=compute_90,code=[sm_90,compute_90] -gencode arch=compute_120,code=sm_120)

if(FLOTILLA_CUDA)
  if(NOT FLOTILLA_NVCC)
    message(FATAL_ERROR "no CUDA compiler under ${FLOTILLA_DEPS}: run cmake/setup.sh cuda")
  endif()
  if(NOT FLOTILLA_TORCH MATCHES "/cuda-venv/")
    message(WARNING "LibTorch has no CUDA libraries beside it: what is built links, and "
      "does not run before cmake/setup.sh cuda has installed them")
  endif()
  add_library(cuda::cudart SHARED IMPORTED)
  set_target_properties(cuda::cudart PROPERTIES
    IMPORTED_LOCATION "${cu}/lib/libcudart.so.13")
  target_include_directories(cuda::cudart SYSTEM INTERFACE "${cu}/include")

  target_link_libraries(torch::torch INTERFACE
    "${FLOTILLA_TORCH}/lib/libtorch_cuda.so" "${FLOTILLA_TORCH}/lib/libc10_cuda.so"
    "${cu}/lib/libcudart.so.13")
  # libtorch_cuda.so refers to the driver, which only a machine with a GPU has.
  target_link_options(torch::torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
endif()

# flotilla_cuda_object(out source): compiles `source` for GPUs; `out` is the object.
function(flotilla_cuda_object out source)
  cmake_path(GET source STEM name)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/${name}.cu.o")
  add_custom_command(
    OUTPUT "${object}"
    COMMAND "${FLOTILLA_NVCC}" ${FLOTILLA_NVCC_FLAGS} -MD -MF "${object}.d"
      -c "${CMAKE_CURRENT_SOURCE_DIR}/${source}" -o "${object}"
    DEPENDS "${source}" DEPFILE "${object}.d"
    COMMENT "Compiling ${source} for GPUs"
    VERBATIM)
  set_source_files_properties("${object}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set(${out} "${object}" PARENT_SCOPE)
endfunction()
