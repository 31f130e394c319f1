# The project's own vocabulary: flotilla_subdirectory, flotilla_library,
# flotilla_binary, and the flags that all of them compile with.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Sloppiness: a precompiled header hides its macros and carries a time stamp.
find_program(FLOTILLA_CCACHE ccache)
if(FLOTILLA_CCACHE AND (NOT CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_COMPILER_LAUNCHER STREQUAL "ccache"))
  set(CMAKE_CXX_COMPILER_LAUNCHER
    env CCACHE_SLOPPINESS=pch_defines,time_macros "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}"
    CCACHE_NOHASHDIR=1 "${FLOTILLA_CCACHE}")
  set(CMAKE_C_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
endif()

add_library(flotilla_flags INTERFACE)
target_include_directories(flotilla_flags INTERFACE "${CMAKE_SOURCE_DIR}")
# Some packages bring -pthread and some do not; a precompiled header serves only
# targets that agree.
target_compile_options(flotilla_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-pthread>")
# g++ looks for garbage from 128 MB on, again and again; with Torch's header alone it has
# 450. Of learner/nn a tenth less time to compile, for 8 % more memory.
cmake_host_system_information(RESULT flotilla_memory QUERY TOTAL_PHYSICAL_MEMORY)  # MiB
cmake_host_system_information(RESULT flotilla_cores QUERY NUMBER_OF_LOGICAL_CORES)
math(EXPR flotilla_memory_a_core "${flotilla_memory} / ${flotilla_cores}")
if(flotilla_memory_a_core GREATER 4000)
  target_compile_options(flotilla_flags INTERFACE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param ggc-min-heapsize=1048576>")
endif()
if(FLOTILLA_MARCH)
  target_compile_options(flotilla_flags INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-march=${FLOTILLA_MARCH}>")
endif()
if(FLOTILLA_SANITIZE)
  target_compile_options(flotilla_flags INTERFACE
    -fsanitize=${FLOTILLA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1)
  target_link_options(flotilla_flags INTERFACE -fsanitize=${FLOTILLA_SANITIZE})
  if(FLOTILLA_SANITIZE MATCHES "address")
    target_compile_definitions(flotilla_flags INTERFACE FLOTILLA_ASAN)
  endif()
endif()

# Warnings are errors in our code and silent in others'. Of clang's, those about
# locks alone: the rest is gcc's business, in every other build.
# -Wno-restrict: g++ 12 sees overlaps in string concatenation (GCC bug 105651).
add_library(flotilla_warnings INTERFACE)
target_compile_options(flotilla_warnings INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Werror>"
  "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>"
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wthread-safety;-Wno-error;-Werror=thread-safety>")

# Half of the time from nothing: what files include is read, and what they share of
# templates made, once for some. Whoever changes a library again and again sets OFF.
# .ci/long does too, which shows that each compiles alone, but for precompiled headers.
option(FLOTILLA_UNITY "Compile files of a library, and tests of a folder, together" ON)

# Adds a folder that has a CMakeLists.txt.
macro(flotilla_subdirectory folder)
  if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/CMakeLists.txt")
    add_subdirectory(${folder})
  endif()
endmacro()

# flotilla_links(out wanted target...): whether any of our targets needs `wanted`, one
# of ours by its alias or a package's.
function(flotilla_links out wanted)
  set(${out} FALSE PARENT_SCOPE)
  foreach(target IN LISTS ARGN)
    string(REGEX REPLACE "^\\$<LINK_ONLY:(.*)>$" "\\1" target "${target}")
    if(target STREQUAL wanted)
      set(${out} TRUE PARENT_SCOPE)
      return()
    elseif(target MATCHES "^flotilla(::|_)" AND TARGET ${target})
      get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
      flotilla_links(needs "${wanted}" ${links})
      if(needs)
        set(${out} TRUE PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# Compiles files of `target` together: all of them, but where they are many those that
# begin with letters of one range, so that both cores have work.
set(flotilla_few 24)
function(flotilla_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FLOTILLA_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(all ${target} SOURCES)
  list(FILTER all INCLUDE REGEX "\\.cc$")
  list(LENGTH all count)
  set(ranges a-z)
  if(count GREATER flotilla_few)
    set(ranges a-e f-o p-r s-z)
  endif()
  foreach(range IN LISTS ranges)
    set(files ${ARGN})
    list(FILTER files INCLUDE REGEX "(^|/)[${range}][^/]*$")
    set_source_files_properties(${files} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${range})
  endforeach()
endfunction()

# A little: of what waits more than it computes, a third less time to compile. Presets with
# sanitizers say themselves how all of that is optimized, and nothing at all may be; what
# computes, and messages, are optimized a little there, or their tests crawl.
set(flotilla_little "$<$<CONFIG:Release>:-O1>")
set(flotilla_light "${flotilla_little}")
# Not at all: all tests compile in an eighth less time, a header more included, and what
# they test is tuned.
set(flotilla_untuned "$<$<CONFIG:Release>:-O0>")
if(FLOTILLA_SANITIZE)
  set(flotilla_light "")
  set(flotilla_untuned "")
endif()

# flotilla_library(name [ALONE] [LIGHT] [SRCS a.cc...] [HDRS a.h...] [DEPS target...])
#
# Makes flotilla_<name> with the alias flotilla::<name>. Without sources it is
# header-only. Dependencies are public. ALONE: files are compiled one by one, by the
# library's own options, so that what becomes of each depends on no other. LIGHT: see
# flotilla_light.
function(flotilla_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "ALONE;LIGHT" "" "SRCS;HDRS;DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "flotilla_library(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  if(arg_SRCS)
    add_library(flotilla_${name} STATIC ${arg_SRCS} ${arg_HDRS})
    target_link_libraries(flotilla_${name}
      PUBLIC flotilla_flags ${arg_DEPS} PRIVATE flotilla_warnings)
    if(arg_LIGHT)
      target_compile_options(flotilla_${name} PRIVATE ${flotilla_light})
    endif()
    if(arg_ALONE)
      if(FLOTILLA_SANITIZE)
        target_compile_options(flotilla_${name} PRIVATE ${flotilla_little})
      endif()
      flotilla_plain_pch(flotilla_${name} OWN ${arg_DEPS})
    else()
      flotilla_unity(flotilla_${name} ${arg_SRCS})
      flotilla_plain_pch(flotilla_${name} ${arg_DEPS})
    endif()
  else()
    add_library(flotilla_${name} INTERFACE ${arg_HDRS})
    target_link_libraries(flotilla_${name} INTERFACE flotilla_flags ${arg_DEPS})
  endif()
  add_library(flotilla::${name} ALIAS flotilla_${name})
endfunction()

# Targets that build a part of the whole: the programs, the tests of a label,
# and whatever needs no Torch.
add_custom_target(programs)
add_custom_target(torch_free)
function(flotilla_part part target)
  if(NOT TARGET ${part})
    add_custom_target(${part})
  endif()
  add_dependencies(${part} ${target})
endfunction()

# flotilla_copy(list from to)
#
# Has `to` be made as a copy of `from`, a file of this folder, and appends it to `list`.
function(flotilla_copy list from to)
  add_custom_command(OUTPUT "${to}"
    COMMAND ${CMAKE_COMMAND} -E copy "${CMAKE_CURRENT_SOURCE_DIR}/${from}" "${to}"
    DEPENDS "${from}"
    VERBATIM)
  list(APPEND ${list} "${to}")
  set(${list} "${${list}}" PARENT_SCOPE)
endfunction()

# flotilla_binary(name SRCS main.cc... [DEPS target...])
#
# Puts the program <name> in <build>/bin. Those of tests/ are no part of `programs`.
function(flotilla_binary name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SRCS;DEPS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "flotilla_binary(${name}): what is ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  add_executable(${name} ${arg_SRCS})
  target_link_libraries(${name} PRIVATE flotilla_flags flotilla_warnings ${arg_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  flotilla_plain_pch(${name} ${arg_DEPS})
  set(tests "${CMAKE_SOURCE_DIR}/tests")
  cmake_path(IS_PREFIX tests "${CMAKE_CURRENT_SOURCE_DIR}" of_tests)
  if(NOT of_tests)
    flotilla_part(programs ${name})
  endif()
  flotilla_links(torch torch::torch ${arg_DEPS})
  if(NOT torch)
    flotilla_part(torch_free ${name})
  endif()
endfunction()
