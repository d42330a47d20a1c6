"""TPC-C's five transactions, in one thread, on one warehouse with a tenth of the customers and a hundredth
of the items."""

import random

DISTRICTS, CUSTOMERS, ITEMS = 10, 300, 1000

SCHEMA = """
create table warehouse(id integer primary key, tax real, ytd real);
create table district(id integer primary key, tax real, ytd real, next_order integer);
create table customer(district, id, last, credit, discount real, balance real, ytd real,
    payments integer, deliveries integer, data, primary key(district, id)) without rowid;
create index customer_by_name on customer(district, last);
create table history(district, customer, amount real, data);
create table orders(district, id, customer, carrier, lines integer, entered,
    primary key(district, id)) without rowid;
create index orders_by_customer on orders(district, customer, id);
create table new_order(district, id, primary key(district, id)) without rowid;
create table order_line(district, "order", number, item, quantity, amount real, delivered, info,
    primary key(district, "order", number)) without rowid;
create table item(id integer primary key, name, price real, data);
create table stock(id integer primary key, quantity integer, ytd integer, orders integer,
    info, data);
"""


def fill(connection):
    chance = random.Random(0)
    connection.executescript(SCHEMA)
    connection.execute("begin")
    connection.execute("insert into warehouse values(1, 0.1, 300000)")
    for item in range(ITEMS):
        connection.execute(
            "insert into item values(?, ?, ?, ?)", (item, f"item {item}", chance.uniform(1, 100), "d" * 40)
        )
        connection.execute(
            "insert into stock values(?, ?, 0, 0, ?, ?)", (item, chance.randint(10, 100), "i" * 24, "d" * 240)
        )
    for district in range(DISTRICTS):
        connection.execute(
            "insert into district values(?, ?, 30000, ?)", (district, chance.random() / 5, CUSTOMERS)
        )
        for customer in range(CUSTOMERS):
            connection.execute(
                "insert into customer values(?, ?, ?, 'GC', ?, -10, 10, 1, 0, ?)",
                (district, customer, f"name {customer % 100}", chance.random() / 2, "c" * 400),
            )
            connection.execute(
                "insert into orders values(?, ?, ?, ?, 5, 0)",
                (district, customer, customer, None if customer >= CUSTOMERS * 7 // 10 else 1),
            )
            if customer >= CUSTOMERS * 7 // 10:
                connection.execute("insert into new_order values(?, ?)", (district, customer))
            for number in range(5):
                connection.execute(
                    "insert into order_line values(?, ?, ?, ?, 5, 10, 0, ?)",
                    (district, customer, number, chance.randrange(ITEMS), "x" * 24),
                )
    connection.execute("commit")


def new_order(connection, chance):
    district, customer = chance.randrange(DISTRICTS), chance.randrange(CUSTOMERS)
    one = lambda *query: connection.execute(*query).fetchone()
    one("select tax from warehouse")
    (number,) = one("select next_order from district where id = ?", (district,))
    connection.execute("update district set next_order = ? where id = ?", (number + 1, district))
    one("select discount, credit from customer where district = ? and id = ?", (district, customer))
    lines = chance.randint(5, 15)
    connection.execute(
        "insert into orders values(?, ?, ?, null, ?, 1)", (district, number, customer, lines)
    )
    connection.execute("insert into new_order values(?, ?)", (district, number))
    for line in range(lines):
        item, quantity = chance.randrange(ITEMS), chance.randint(1, 10)
        (price,) = one("select price from item where id = ?", (item,))
        stock, info = one("select quantity, info from stock where id = ?", (item,))
        stock = stock - quantity if stock >= quantity + 10 else stock - quantity + 91
        connection.execute(
            "update stock set quantity = ?, ytd = ytd + ?, orders = orders + 1 where id = ?",
            (stock, quantity, item),
        )
        connection.execute(
            "insert into order_line values(?, ?, ?, ?, ?, ?, null, ?)",
            (district, number, line, item, quantity, price * quantity, info),
        )


def payment(connection, chance):
    district, amount = chance.randrange(DISTRICTS), chance.uniform(1, 5000)
    connection.execute("update warehouse set ytd = ytd + ?", (amount,))
    connection.execute("update district set ytd = ytd + ? where id = ?", (amount, district))
    found = connection.execute(
        "select id from customer where district = ? and last = ? order by id",
        (district, f"name {chance.randrange(100)}"),
    ).fetchall()
    (customer,) = found[len(found) // 2]
    connection.execute(
        "update customer set balance = balance - ?, ytd = ytd + ?, payments = payments + 1 "
        "where district = ? and id = ?",
        (amount, amount, district, customer),
    )
    connection.execute("insert into history values(?, ?, ?, ?)", (district, customer, amount, "h" * 24))


def order_status(connection, chance):
    district, customer = chance.randrange(DISTRICTS), chance.randrange(CUSTOMERS)
    found = connection.execute(
        "select id from orders where district = ? and customer = ? order by id desc limit 1",
        (district, customer),
    ).fetchone()
    if found:
        connection.execute(
            'select * from order_line where district = ? and "order" = ?', (district, found[0])
        ).fetchall()


def delivery(connection, chance):
    for district in range(DISTRICTS):
        found = connection.execute(
            "select id from new_order where district = ? order by id limit 1", (district,)
        ).fetchone()
        if not found:
            continue
        order = (district, found[0])
        connection.execute("delete from new_order where district = ? and id = ?", order)
        connection.execute("update orders set carrier = 7 where district = ? and id = ?", order)
        connection.execute(
            'update order_line set delivered = 1 where district = ? and "order" = ?', order
        )
        connection.execute(
            "update customer set deliveries = deliveries + 1, balance = balance + (select sum(amount) "
            'from order_line where district = ?1 and "order" = ?2) where district = ?1 and id = '
            "(select customer from orders where district = ?1 and id = ?2)",
            order,
        )


def stock_level(connection, chance):
    connection.execute(
        "select count(distinct stock.id) from district join order_line on order_line.district = "
        'district.id and "order" between next_order - 20 and next_order - 1 join stock on stock.id = item '
        "where district.id = ? and stock.quantity < 15",
        (chance.randrange(DISTRICTS),),
    ).fetchone()


MIX = [new_order] * 45 + [payment] * 43 + [order_status] * 4 + [delivery] * 4 + [stock_level] * 4


def run(connection, count):
    chance = random.Random(1)
    for _ in range(count):
        transaction = chance.choice(MIX)
        connection.execute("begin")
        transaction(connection, chance)
        connection.execute("commit")
