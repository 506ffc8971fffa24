{# The greatest value of a column in a data set, or a first value if there is none yet. It reads the files, not the
   view {{ this }}, which after a run that was killed may show rows that were not merged. #}
{% macro newest(column, path, first) %}
  {%- set files = path ~ "/**/*.parquet" -%}
  {%- set count = run_query("select count(*) from glob('" ~ files ~ "')")[0][0] if execute else 0 -%}
  {%- if count -%}
    (select coalesce(max({{ column }}), {{ first }}) from read_parquet('{{ files }}', union_by_name = true))
  {%- else -%}
    {{ first }}
  {%- endif -%}
{% endmacro %}
