# With FLOTILLA_CUDA=ON: the CUDA language, by the compiler from the wheels;
# cuda::cudart; and torch::torch with its CUDA half. Compiles and links where
# there is neither GPU nor driver.

if(FLOTILLA_CUDA)
  cmake_path(GET FLOTILLA_TORCH PARENT_PATH site)
  set(cu "${site}/nvidia/cu13")
  set(CMAKE_CUDA_COMPILER "${cu}/bin/nvcc")
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING "")
  # The wheel has lib/, where nvcc looks for lib64/.
  set(CMAKE_CUDA_FLAGS_INIT "-L${cu}/lib -I${cu}/include/cccl")
  enable_language(CUDA)
  # CMake 3.25 does not know that this nvcc does C++20.
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)

  add_library(cuda::cudart SHARED IMPORTED)
  set_target_properties(cuda::cudart PROPERTIES
    IMPORTED_LOCATION "${cu}/lib/libcudart.so.13")
  target_include_directories(cuda::cudart SYSTEM INTERFACE "${cu}/include")

  target_compile_definitions(torch::torch INTERFACE USE_C10D_NCCL FLOTILLA_HAS_CUDA)
  target_link_libraries(torch::torch INTERFACE
    "${FLOTILLA_TORCH}/lib/libtorch_cuda.so" "${FLOTILLA_TORCH}/lib/libc10_cuda.so"
    cuda::cudart)
  # libtorch_cuda.so refers to the driver, which only a machine with a GPU has.
  target_link_options(torch::torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
endif()
