{{ config(materialized="table") }}

select day, count(*) as orders, count(*) filter (state = 'paid') as paid
from {{ ref("orders") }}
group by day
