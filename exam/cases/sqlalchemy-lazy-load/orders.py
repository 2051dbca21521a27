"""Lists orders with their lines at a fixed rate: orders.py HOST RATE WORKERS MODE. MODE is lazy or together."""
import random
import sys

import paced
import sqlalchemy as sa
from sqlalchemy import orm


class Base(orm.DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    lines: orm.Mapped[list["Line"]] = orm.relationship()


class Line(Base):
    __tablename__ = "lines"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
    order_id: orm.Mapped[int] = orm.mapped_column(sa.ForeignKey("orders.id"))
    price: orm.Mapped[int]


def main():
    host, rate, workers, mode = sys.argv[1:]
    engine = sa.create_engine(f"postgresql+psycopg2://bench@{host}:5433/postgres", pool_size=int(workers))

    def page():
        first = random.randint(1, 900)
        query = sa.select(Order).where(Order.id.between(first, first + 39))
        if mode == "together":
            query = query.options(orm.selectinload(Order.lines))
        with orm.Session(engine) as session:
            return sum(line.price for order in session.scalars(query) for line in order.lines)

    paced.run(lambda: page, float(rate), int(workers))


main()
