# `cpack`: flotilla-envhost-<version>-<system>-<processor>.tar.gz, what a host
# without GPUs needs. It unpacks anywhere and runs where glibc is 2.35 or newer: every
# other library is inside the programs (FLOTILLA_STATIC) or comes along, found by a path
# relative to bin/. The `envserver` preset configures it as we distribute it. The emulator
# of Atari games is GPL-2.0-only and never in it: `flotilla install atari` builds it.

if(FLOTILLA_SANITIZE)
  return()
endif()
set(programs "")
foreach(name flotilla flotilla-envserver flotilla-coordinator)
  if(TARGET ${name})
    # DT_RPATH, for it serves the libraries' own libraries; DT_RUNPATH does not.
    target_link_options(${name} PRIVATE -Wl,--disable-new-dtags)
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    list(APPEND programs ${name})
  endif()
endforeach()
if(NOT programs)
  return()
endif()

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME envhost)
install(TARGETS ${programs} RUNTIME_DEPENDENCY_SET libraries RUNTIME DESTINATION bin)
install(RUNTIME_DEPENDENCY_SET libraries
  PRE_EXCLUDE_REGEXES "^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util))\\.so\\.[0-9]"
  LIBRARY DESTINATION lib)
install(DIRECTORY deploy/configs DESTINATION share/flotilla)
install(DIRECTORY proto/flotilla DESTINATION share/flotilla/proto)
install(DIRECTORY "${CMAKE_BINARY_DIR}/share/flotilla/python" DESTINATION share/flotilla
  PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY "${CMAKE_BINARY_DIR}/share/flotilla/atari" DESTINATION share/flotilla
  USE_SOURCE_PERMISSIONS)
install(FILES LICENSE DESTINATION .)
# The licence of each library that is inside, and of each that comes along.
install(FILES ${FLOTILLA_LICENCES} DESTINATION lib)
install(CODE [[
  file(GLOB libraries "${CMAKE_INSTALL_PREFIX}/lib/*.so*")
  foreach(library IN LISTS libraries)
    get_filename_component(name "${library}" NAME)
    execute_process(COMMAND dpkg-query -S "*/${name}"
      OUTPUT_VARIABLE owner ERROR_QUIET)
    string(REGEX REPLACE "^([^:]+):.*" "\\1" package "${owner}")
    set(copyright "/usr/share/doc/${package}/copyright")
    if(package AND EXISTS "${copyright}")
      file(COPY_FILE "${copyright}" "${CMAKE_INSTALL_PREFIX}/lib/${package}.copyright")
    endif()
  endforeach()
]])

set(CPACK_GENERATOR TGZ)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_BINARY_DIR};${PROJECT_NAME};envhost;/")
set(CPACK_PACKAGE_NAME flotilla-envhost)
string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" CPACK_SYSTEM_NAME)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
include(CPack)

if(FLOTILLA_BUILD_TESTS AND NOT FLOTILLA_BUILD_LEARNER)
  add_test(NAME bundle
    COMMAND "${CMAKE_SOURCE_DIR}/tests/bundle_test.sh" "${CMAKE_BINARY_DIR}")
  flotilla_test_properties(bundle e2e 120 "")
endif()
