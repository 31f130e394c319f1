# `cmake --install build --prefix DIR`: programs, configurations, the Python server,
# headers and what find_package(Flotilla) needs, in a folder that may be moved as a
# whole. LibTorch comes along; Debian's libraries (gRPC and its like) do not. With
# CUDA, LibTorch and NVIDIA's libraries stay where cmake/setup.sh put them: they are
# gigabytes.

if(FLOTILLA_SANITIZE)
  return()
endif()
set(include include/flotilla)
set(torch_there lib/flotilla/torch)
set(programs flotilla flotilla-envserver flotilla-coordinator flotilla-learner)
set(linked flotilla-learner)
set(rpath "$ORIGIN/../${torch_there}/lib")
if(FLOTILLA_CUDA)
  list(APPEND linked flotilla_nccl)
  set(rpath "${FLOTILLA_TORCH}/lib" "$<TARGET_FILE_DIR:cuda::cudart>" "$<TARGET_FILE_DIR:nccl::nccl>")
endif()
if(FLOTILLA_STATIC)  # goes where the folders of this machine mean nothing
  set(rpath "")
endif()
# And where pip puts LibTorch and NVIDIA's libraries (cmake/wheel.cmake).
foreach(folder torch nvidia/cu13 nvidia/nccl)
  list(APPEND rpath "$ORIGIN/../../${folder}/lib")
endforeach()
set_target_properties(${linked} PROPERTIES INSTALL_RPATH "${rpath}")
install(TARGETS ${programs} RUNTIME DESTINATION bin)
if(FLOTILLA_CUDA)  # opened by the learner: who builds that alone has it to install
  install(TARGETS flotilla_nccl DESTINATION lib)
  add_dependencies(flotilla-learner flotilla_nccl)
endif()
install(DIRECTORY deploy/configs DESTINATION share/flotilla)
install(DIRECTORY launcher/templates DESTINATION share/flotilla)
install(DIRECTORY proto/flotilla DESTINATION share/flotilla/proto)
install(DIRECTORY "${CMAKE_BINARY_DIR}/share/flotilla/python" DESTINATION share/flotilla
  PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY "${CMAKE_BINARY_DIR}/share/flotilla/atari" DESTINATION share/flotilla
  USE_SOURCE_PERMISSIONS)
install(FILES LICENSE DESTINATION share/flotilla)

install(DIRECTORY services learner envserver DESTINATION ${include} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY "${CMAKE_BINARY_DIR}/gen/" DESTINATION ${include} FILES_MATCHING PATTERN "*.h")
# An env server's libraries, from the one that needs the others on down.
set(server envserver envs env_service env_stream coordinator_client env_wire rpc base proto)
list(TRANSFORM server PREPEND flotilla_)
install(TARGETS ${server} ARCHIVE DESTINATION lib/flotilla)
if(FLOTILLA_HAS_ALE)  # GPL-2.0-only: for this machine, not to be given away
  # As `flotilla install atari` has it: in a folder with its games.
  install(TARGETS flotilla_atari DESTINATION lib/flotilla/atari)
  install(FILES "${FLOTILLA_DEPS}/ale/LICENSE.md" DESTINATION lib/flotilla/atari)
  file(GLOB games "${roms}/*.bin")
  install(FILES ${games} DESTINATION lib/flotilla/atari/roms)
endif()
configure_file(cmake/FlotillaConfig.cmake.in "${CMAKE_BINARY_DIR}/FlotillaConfig.cmake" @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/FlotillaConfigVersion.cmake"
  COMPATIBILITY ExactVersion)
install(FILES "${CMAKE_BINARY_DIR}/FlotillaConfig.cmake" "${CMAKE_BINARY_DIR}/FlotillaConfigVersion.cmake"
  DESTINATION lib/cmake/Flotilla)

if(FLOTILLA_CUDA)
  return()
endif()
# LibTorch's own rpath is its folder and ../../nvidia/cu13/lib.
install(DIRECTORY "${FLOTILLA_TORCH}/include" DESTINATION ${torch_there})
foreach(library torch_cpu c10)
  install(FILES "${FLOTILLA_TORCH}/lib/lib${library}.so" DESTINATION ${torch_there}/lib)
endforeach()
file(GLOB carried "${FLOTILLA_TORCH}/lib/libgomp*.so*")
install(FILES ${carried} DESTINATION ${torch_there}/lib)
file(GLOB cuda "${FLOTILLA_TORCH}/../nvidia/cu13/lib/libcudart.so*"
  "${FLOTILLA_TORCH}/../nvidia/cu13/lib/libcupti.so*")
install(FILES ${cuda} DESTINATION lib/flotilla/nvidia/cu13/lib)
