# nccl::nccl, with FLOTILLA_CUDA=ON: NCCL from the wheel that the torch wheel
# names, the same copy that LibTorch loads.

if(FLOTILLA_CUDA)
  cmake_path(SET site NORMALIZE "${FLOTILLA_NVCC}/../../../..")
  add_library(nccl::nccl SHARED IMPORTED)
  set_target_properties(nccl::nccl PROPERTIES
    IMPORTED_LOCATION "${site}/nvidia/nccl/lib/libnccl.so.2")
  target_include_directories(nccl::nccl SYSTEM INTERFACE "${site}/nvidia/nccl/include")
endif()
