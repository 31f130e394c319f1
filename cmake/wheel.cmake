# What `make wheel` packs (cmake/wheel/pack.sh): the component wheel-flotilla, and
# wheel-flotilla-envhost, which has no learner and wants no torch. Both are folders of
# packages as pip unpacks them, Python's beside flotilla_program, the programs' prefix.
# Only where FLOTILLA_STATIC and FLOTILLA_MARCH say so do they run on other machines
# than this one, and the name of the wheel is true to that.

if(FLOTILLA_SANITIZE)
  return()
endif()
set(version "${PROJECT_VERSION}")
if(FLOTILLA_CUDA)
  string(APPEND version "+cuda")
endif()
set(platform "linux_${CMAKE_SYSTEM_PROCESSOR}")
if(FLOTILLA_STATIC AND FLOTILLA_MARCH STREQUAL "x86-64-v2")
  set(platform "manylinux_2_35_${CMAKE_SYSTEM_PROCESSOR}")
endif()
file(READ cmake/wheel/description.md description)
# Gymnasium's environments, and what reads runs.
set(always "gymnasium>=1.0" "grpcio" "numpy" "protobuf>=4.21")
file(STRINGS cmake/requirements/torch_cpu.txt torch REGEX "^torch==")

# flotilla_wheel(name SUMMARY words PROGRAMS target... REQUIRES requirement...)
function(flotilla_wheel name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "SUMMARY" "PROGRAMS;REQUIRES")
  set(about "${CMAKE_BINARY_DIR}/wheel/${name}")
  set(summary "${arg_SUMMARY}")
  set(requires "")
  foreach(requirement IN LISTS arg_REQUIRES)
    string(APPEND requires "Requires-Dist: ${requirement}\n")
  endforeach()
  configure_file(cmake/wheel/METADATA.in "${about}/METADATA" @ONLY)
  configure_file(cmake/wheel/WHEEL.in "${about}/WHEEL" @ONLY)
  string(REPLACE "-" "_" folder "${name}")
  set(info "${folder}-${version}.dist-info")
  set(of COMPONENT "wheel-${name}" EXCLUDE_FROM_ALL)
  install(TARGETS ${arg_PROGRAMS} DESTINATION flotilla_program/bin ${of})
  install(DIRECTORY deploy/configs launcher/templates DESTINATION flotilla_program/share/flotilla ${of})
  install(DIRECTORY proto/flotilla DESTINATION flotilla_program/share/flotilla/proto ${of})
  install(DIRECTORY "${CMAKE_BINARY_DIR}/share/flotilla/python/" DESTINATION . ${of}
    PATTERN "__pycache__" EXCLUDE)
  install(DIRECTORY "${CMAKE_BINARY_DIR}/share/flotilla/atari"
    DESTINATION flotilla_program/share/flotilla USE_SOURCE_PERMISSIONS ${of})
  install(FILES "${about}/METADATA" "${about}/WHEEL" cmake/wheel/entry_points.txt
    DESTINATION "${info}" ${of})
  install(FILES LICENSE ${FLOTILLA_LICENCES} DESTINATION "${info}/licenses" ${of})
endfunction()

set(programs flotilla flotilla-coordinator flotilla-envserver)
flotilla_wheel(flotilla-envhost PROGRAMS ${programs} REQUIRES ${always}
  SUMMARY ": environments and the coordinator, without the learner")
if(FLOTILLA_BUILD_LEARNER)
  list(APPEND programs flotilla-learner)
  if(FLOTILLA_CUDA)
    list(APPEND programs flotilla_nccl)
  endif()
  flotilla_wheel(flotilla PROGRAMS ${programs} REQUIRES "${torch}" ${always})
endif()
