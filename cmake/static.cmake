# With FLOTILLA_STATIC, gRPC and its like are linked from the archives that Debian's
# packages have beside the shared libraries: what is built then needs LibTorch (the
# learner), C++'s and C's libraries, and nothing else. FLOTILLA_LICENCES: files with the
# licence of each library that comes along inside, as its package states it.

set(FLOTILLA_LICENCES "")
if(NOT FLOTILLA_STATIC)
  return()
endif()
find_library(FLOTILLA_RE2 libre2.a REQUIRED)  # the package names it -lre2
set_target_properties(re2::re2 PROPERTIES INTERFACE_LINK_LIBRARIES "${FLOTILLA_RE2}")
# glog's package does not name libunwind, which its archive needs.
add_library(flotilla_unwind STATIC "${CMAKE_SOURCE_DIR}/cmake/unwind.c")
set_property(TARGET glog::glog APPEND PROPERTY INTERFACE_LINK_LIBRARIES flotilla_unwind)

set(inside "${FLOTILLA_RE2}" "/usr/include/nlohmann/json.hpp")
get_property(targets DIRECTORY "${CMAKE_SOURCE_DIR}" PROPERTY IMPORTED_TARGETS)
foreach(target IN LISTS targets)
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(SHARED|UNKNOWN)_LIBRARY$")
    continue()
  endif()
  get_target_property(configurations ${target} IMPORTED_CONFIGURATIONS)
  list(TRANSFORM configurations PREPEND "IMPORTED_LOCATION_")
  foreach(property IMPORTED_LOCATION ${configurations})
    get_target_property(shared ${target} ${property})
    string(REGEX REPLACE "\\.so[.0-9]*$" ".a" archive "${shared}")
    if(NOT archive STREQUAL shared AND EXISTS "${archive}")
      set_target_properties(${target} PROPERTIES ${property} "${archive}")
      list(APPEND inside "${archive}")
    endif()
  endforeach()
endforeach()

list(REMOVE_DUPLICATES inside)
execute_process(COMMAND dpkg-query -S ${inside} OUTPUT_VARIABLE owners COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[^:\n]+" packages "${owners}")
list(TRANSFORM packages STRIP)
list(REMOVE_DUPLICATES packages)
foreach(package IN LISTS packages)
  set(licence "${CMAKE_BINARY_DIR}/licences/${package}.copyright")
  configure_file("/usr/share/doc/${package}/copyright" "${licence}" COPYONLY)
  list(APPEND FLOTILLA_LICENCES "${licence}")
endforeach()
