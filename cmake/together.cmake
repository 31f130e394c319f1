# cmake -DOUT=FILE.cc -P together.cmake -- FILE.cc...: writes the files one after the other,
# as if each were in the place where it is, and its unnamed namespace named after it: two
# may have helpers of one name.

set(text "")
set(found FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  set(file "${CMAKE_ARGV${i}}")
  if(found)
    cmake_path(GET file STEM name)
    file(READ "${file}" content)
    string(REPLACE "\nnamespace {\n" "\nnamespace ${name} {\n" content "${content}")
    string(APPEND text "#line 1 \"${file}\"\n${content}\n")
  elseif(file STREQUAL "--")
    set(found TRUE)
  endif()
endforeach()
file(WRITE "${OUT}" "${text}")
